def early_0(a):
    return a * 0


def early_1(a):
    return a * 1


def early_2(a):
    return a * 2


def early_3(a):
    return a * 3


def early_4(a):
    return a * 4


def early_5(a):
    return a * 5


