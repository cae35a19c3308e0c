def run(a):
    limit = a * 2
    return limit
