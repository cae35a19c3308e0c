def late_0(a, b):
    return a - b * 0


def late_1(a, b):
    return a - b * 1


def late_2(a, b):
    return a - b * 2


def late_3(a, b):
    return a - b * 3


def late_4(a, b):
    return a - b * 4


def late_5(a, b):
    return a - b * 5


def late_6(a, b):
    return a - b * 6


def late_7(a, b):
    return a - b * 7


def late_8(a, b):
    return a - b * 8


