def run(a):
    bound = a * 2
    return bound
