def f():
    return 0
more
