def inner_helper(x):
    value = weigh(x)
    value = value * 18
    record_result(value)
    return value - 3


