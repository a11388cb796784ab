// Runs in the process: carries out the requests of bridge.c with the gum of Frida's agent.

const [REPLACE_FAST, REPLACE, REVERT, END] = [0, 1, 2, 3];
// GumReplaceReturn by words of the exception's message.
const CODES = [
    ['unable to intercept', -1],
    ['already', -2],
    ['permitted', -3],
    ['policy', -3],
    ['type', -4],
];

// `Interceptor.replace` does not return the address of the original, which the C function returns.
// It is the last of four pieces of code in the trampoline; the patched function jumps to the first
// (seen with 17.9.5).
function originalOf(target) {
    const jump = Instruction.parse(target);
    let enter = null;
    if (jump.mnemonic === 'jmp' && jump.operands[0].type === 'imm')
        enter = ptr(jump.operands[0].value.toString());
    else if (jump.mnemonic === 'jmp' && jump.operands[0].type === 'mem' && jump.operands[0].value.base === 'rip')
        enter = jump.next.add(jump.operands[0].value.disp).readPointer();
    if (enter === null)
        throw new Error(`${target}: no jump was written: ${jump}`);
    // Before the first piece is the address of the context, which holds the address of the first
    // piece, later that of the last, and another one directly behind it.
    const context = enter.sub(8).readPointer();
    const words = [];
    for (let offset = 0; offset < 160; offset += 8)
        words.push(context.add(offset).readPointer());
    const isInside = word => word.compare(enter) > 0 && word.compare(enter.add(256)) < 0;
    const at = words.findIndex(word => word.equals(enter));
    const last = words.findIndex((word, index) => index > at && isInside(word));
    if (at < 0 || last < 0 || !isInside(words[last + 1]) || words[last + 1].compare(words[last]) >= 0)
        throw new Error(`${target}: ${enter} is not a trampoline as was expected: ${words}`);
    return words[last];
}

function nameOf(target) {
    const symbol = DebugSymbol.fromAddress(target);
    return symbol.name || target.toString();
}

let answer = null;

rpc.exports = {
    // Serves one transaction; `release` answers its end. Returns how many functions were replaced
    // by each method.
    serve(nextRequest, giveAnswer) {
        const options = { scheduling: 'exclusive', exceptions: 'propagate' };
        const next = new NativeFunction(ptr(nextRequest), 'pointer', [], options);
        answer = new NativeFunction(ptr(giveAnswer), 'void', ['int', 'pointer'], options);
        const done = { fast: 0, slow: [], refused: [], reverted: 0, errors: [] };
        for (;;) {
            const request = next();
            const kind = request.readU64().toNumber();
            const target = request.add(8).readPointer();
            const replacement = request.add(16).readPointer();
            let code = 0;
            let original = NULL;
            try {
                if (kind === REPLACE_FAST) {
                    original = Interceptor.replaceFast(target, replacement);
                    done.fast += 1;
                } else if (kind === REPLACE) {
                    Interceptor.replace(target, replacement);
                    // Otherwise the jump is written at the end of the transaction.
                    Interceptor.flush();
                    original = originalOf(target);
                    done.slow.push(nameOf(target));
                } else if (kind === REVERT) {
                    Interceptor.revert(target);
                    done.reverted += 1;
                } else if (kind === END) {
                    Interceptor.flush();
                    return done;
                }
            } catch (error) {
                const known = CODES.find(([words]) => error.message.includes(words));
                code = known ? known[1] : -100;
                const message = `${['replaceFast', 'replace', 'revert', 'end'][kind]} ${nameOf(target)}: ${error.message}`;
                done.errors.push(message);
                if (kind === REPLACE)
                    done.refused.push(nameOf(target));
            }
            answer(code, original);
        }
    },
    release() {
        answer(0, NULL);
    },
};
