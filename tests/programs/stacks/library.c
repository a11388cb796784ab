// A library whose function has a frame of SIZE bytes.
void call(void (*function)(void));

void call(void (*function)(void))
{
    volatile char memory[SIZE];
    memory[0] = 1;
    function();
    memory[SIZE - 1] = memory[0];
}
