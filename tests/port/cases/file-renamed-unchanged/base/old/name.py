import os
import sys


def weigh_all(x):
    total = start_value(x)
    for item in range(x):
        total += weigh(item)
        record(total)
    limit = 99
    return min(total, limit)


def gamma(x):
    w = [x]
    w.append(2)
    return w


