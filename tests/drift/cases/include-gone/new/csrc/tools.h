#pragma once
inline int round_up(int a, int b) {
  return (a + b - 1) / b * b;
}
