def run(a, b, scale=1):
    return a
