def run(a, length: int, b):
    return a
