def run(a, scale=2):
    return a
