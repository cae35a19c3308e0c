class A:
    def run(self):
        x = prepare()
        y = finish(x)
        self.x = 1
        self.fixed = True
        return y


class B:
    def run(self):
        x = prepare()
        y = finish(x)
        self.x = 1
        self.fixed = True
        return y


class C:
    def run(self):
        x = prepare()
        y = finish(x)
        self.x = 1
        return y


