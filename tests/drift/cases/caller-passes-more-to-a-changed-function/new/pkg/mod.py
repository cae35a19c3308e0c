def launch_all(a, b, mode=None):
    return a


def main():
    return launch_all(1, 2, mode=3)
