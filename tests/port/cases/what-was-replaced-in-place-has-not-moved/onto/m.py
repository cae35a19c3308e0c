def outer(x):
    first = prepare(x)
    return compiled_kernel(first)


