def run(a, clean: bool, b):
    return a
