def run(a, extra=None):
    return a
