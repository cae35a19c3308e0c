def build(op):
    return op.body()
