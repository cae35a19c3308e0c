def run(a, b=1, *, mode):
    return a
