def a(op):
    return op.then_block + 1
