def run(a):
    return a ** 0.5
