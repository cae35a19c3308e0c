def Thing(a):
    return a
