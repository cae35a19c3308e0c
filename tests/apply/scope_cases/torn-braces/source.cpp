void f() {
  if (x) {
    run();
}

void g() {
  run();
}
