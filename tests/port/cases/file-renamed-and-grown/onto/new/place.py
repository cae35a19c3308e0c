import os
import sys


def more_0(x):
    value_0 = compute_0(x)
    return value_0 + 0


def more_1(x):
    value_1 = compute_1(x)
    return value_1 + 1


def more_2(x):
    value_2 = compute_2(x)
    return value_2 + 2


def more_3(x):
    value_3 = compute_3(x)
    return value_3 + 3


def more_4(x):
    value_4 = compute_4(x)
    return value_4 + 4


def more_5(x):
    value_5 = compute_5(x)
    return value_5 + 5


def more_6(x):
    value_6 = compute_6(x)
    return value_6 + 6


def more_7(x):
    value_7 = compute_7(x)
    return value_7 + 7


def more_8(x):
    value_8 = compute_8(x)
    return value_8 + 8


def more_9(x):
    value_9 = compute_9(x)
    return value_9 + 9


def more_10(x):
    value_10 = compute_10(x)
    return value_10 + 10


def more_11(x):
    value_11 = compute_11(x)
    return value_11 + 11


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


