from pkg.far import helper


def other():
    return helper(2)
