def launch_all(a, b):
    return a


def main():
    return launch_all(1, 2)
