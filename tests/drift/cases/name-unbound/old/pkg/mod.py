import math

from pkg.help import shrink


def run(a):
    return shrink(math.sqrt(a))
