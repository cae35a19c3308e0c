def shard_total():
    try:
        return decode()
    except AssertionError:
        return 1


def unrelated_thing():
    return 3
