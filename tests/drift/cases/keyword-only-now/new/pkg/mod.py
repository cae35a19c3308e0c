def run(a, *, flag=False):
    return a
