class B:
    def run(self):
        x = prepare()
        y = finish(x)
        self.x = 1
        return y


class C:
    def run(self):
        x = prepare()
        y = finish(x)
        self.x = 1
        return y


class A:
    def run(self):
        x = prepare()
        y = finish(x)
        self.x = 1
        return y


