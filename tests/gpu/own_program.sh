# Sourced by scripts that compile their own program, with PACKAGE and RESULTS as $1 and $2. Sets
# `package`, `results`, `tests`, and `driver`: the options of `cutape` that DRIVER=null needs. The
# program then finds the null driver.
package=$(cd "$1" && pwd)
mkdir -p "$2"
results=$(cd "$2" && pwd)
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
driver=()
if [ "${DRIVER:-}" = null ]; then
    driver=(--driver null)
    mkdir -p "$results/driver"
    ln -sf "$package/libcutape_null.so" "$results/driver/libcuda.so.1"
    export LD_LIBRARY_PATH=$results/driver
fi

# compile NAME: tests/gpu/NAME.c becomes $results/NAME.
compile() {
    "${CC:-cc}" -std=gnu11 -O2 -Wall -I"$tests/programs/include" -I"$tests/programs" \
        "$tests/gpu/$1.c" -o "$results/$1" "$package/libcutape_null.so"
}

# compile_ranks NAME: tests/programs/ranks/NAME.c, a program of several ranks.
compile_ranks() {
    "${CC:-cc}" -std=gnu11 -O2 -Wall -I"$tests/programs/include" -I"$tests/programs" \
        "$tests/programs/ranks/$1.c" -o "$results/$1" "$package/libcutape_null.so" -pthread
}
