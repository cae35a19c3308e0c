def run(a, b=1):
    return a
