# Language level, warnings and sanitizers: everything that holds for every target of the project.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

set(LARIAT_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them: address,undefined or thread")
option(LARIAT_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
option(LARIAT_TESTS "Build unit tests" ON)
option(LARIAT_BENCHES "Build microbenchmarks" ON)

find_program(CCACHE_PROGRAM ccache)
find_program(ENV_PROGRAM env)
if(CCACHE_PROGRAM AND ENV_PROGRAM)
  # Paths below the tree are hashed relative to it, so that a fresh clone anywhere hits what another clone built.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${ENV_PROGRAM} CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
endif()

add_compile_options(-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror
                    -fno-omit-frame-pointer -ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # libstdc++ 12's stable_sort uses a function that it marks deprecated itself, which clang lays at our door.
  add_compile_options(-Wno-deprecated-declarations)
endif()
# x86-64-v2 is the floor (SSE4.2); wider kernels are compiled beside it and chosen at run time.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  add_compile_options(-march=x86-64-v2)
endif()
# Contracting a*b+c on its own would let two compilers, or two inlinings of one function, round differently.
add_compile_options(-ffp-contract=off)

if(LARIAT_SANITIZE)
  add_compile_options(-fsanitize=${LARIAT_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LARIAT_SANITIZE})
endif()
if(LARIAT_FUZZ)
  # Without coverage in the libraries too a fuzzer is blind: it sees no new path and keeps no input.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM AND NOT CMAKE_CROSSCOMPILING)
  add_link_options(-fuse-ld=mold)
endif()

find_package(Threads REQUIRED)
