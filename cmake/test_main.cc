// main() of every unit test: moves to the tree's root, so that tests name files relative to it.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  if (chdir(LARIAT_ROOT) != 0) {
    std::perror("cannot enter the source tree " LARIAT_ROOT);
    return 2;
  }
  return RUN_ALL_TESTS();
}
