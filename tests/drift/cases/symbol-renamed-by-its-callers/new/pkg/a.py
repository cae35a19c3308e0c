from pkg.mod import shard_total


def width(block):
    return block * shard_total()
