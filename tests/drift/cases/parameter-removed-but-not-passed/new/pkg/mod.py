def run(a, b):
    return a
