from n import inner_helper


def outer(x):
    first = prepare(x)
    return inner_helper(first)


