from pkg.mod import count_ranks


def depth(block):
    return block + count_ranks()
