from pkg.mod import count_ranks


def width(block):
    return block * count_ranks()
