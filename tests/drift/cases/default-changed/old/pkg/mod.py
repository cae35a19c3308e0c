def run(a, scale=1):
    return a
