def part_base(value):
    return value


def gone(value):
    out = []
    for one in value:
        out.append(part_base(one))
    return out


def gone_caller(value):
    return gone(value)


def part_0(value):
    result = value + 0
    return result * part_base(value)


def part_1(value):
    result = value + 1
    return result * part_base(value)


def part_2(value):
    result = value + 2
    return result * part_base(value)


def part_3(value):
    result = value + 3
    return result * part_base(value)


def part_4(value):
    result = value + 4
    return result * part_base(value)

