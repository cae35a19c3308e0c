def a(op):
    return op.body() + 1
