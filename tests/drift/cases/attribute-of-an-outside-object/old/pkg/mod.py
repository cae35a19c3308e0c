def build(op):
    return op.then_block
