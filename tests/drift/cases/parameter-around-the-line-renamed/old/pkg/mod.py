def run(a, b):
    return a + b
