from pkg.mod import shard_total


def depth(block):
    return block + shard_total()
