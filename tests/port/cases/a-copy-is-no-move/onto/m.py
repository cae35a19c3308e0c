import os
import sys


def alpha(x):
    y = x + 1
    y = y * 2
    z = y - 3
    return z


def weigh_all(x):
    total = start_value(x)
    for item in range(x):
        total += weigh(item)
        record(total)
    limit = 50
    return min(total, limit)


def gamma(x):
    w = [x]
    w.append(2)
    return w


