//! Memory Management: memory and events that other processes use.

use crate::call::answer::{
    Answer, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, OUT_OF_MEMORY, invalid_if, reject_if,
    valid_if,
};
use crate::call::argument::{Argument, Call, OutRef};
use crate::call::entry::entries;
use crate::object::memory::{DEVICE, Import, Purpose};
use crate::object::shared_file::{IpcHandle, SharedFile, Sharing};
use crate::object::stream::{DISABLE_TIMING, Event, INTERPROCESS};
use crate::state::{Current, Locked};

entries! {
    cuIpcGetMemHandle: get_memory;
    cuIpcOpenMemHandle: open_memory;
    cuIpcCloseMemHandle: close_memory;
    cuIpcGetEventHandle: get_event;
    cuIpcOpenEventHandle: open_event;
}

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, which every call must give.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

/// A handle by value, which the C ABI puts on the stack, behind the words of the registers.
struct ByValue(IpcHandle);

impl Argument for ByValue {
    const WORDS: usize = 0;

    fn read(call: &Call, _index: usize) -> Answer<Self> {
        const REGISTERS: usize = 6;
        let words = call
            .words
            .get(REGISTERS..REGISTERS + 8)
            .ok_or(INVALID_VALUE)?;
        // SAFETY: the handle consists of 64 bytes of numbers, for which all values are valid;
        // alignment is not assumed.
        Ok(Self(unsafe {
            words.as_ptr().cast::<IpcHandle>().read_unaligned()
        }))
    }
}

/// Memory of `cuMemAlloc` only; whether the real driver takes an address inside it is assumed.
fn get_memory(mut state: Current, handle: OutRef<IpcHandle>, address: u64) -> Answer {
    valid_if(state.purpose_at(address) == Some(Purpose::Device))?;
    let size = state.allocations[&address].size;
    handle.set(state.space.share(address, size).ok_or(OUT_OF_MEMORY)?)
}

fn open_memory(
    mut state: Current,
    address: OutRef<u64>,
    ByValue(handle): ByValue,
    flags: u32,
) -> Answer {
    valid_if(flags == LAZY_ENABLE_PEER_ACCESS)?;
    let file = SharedFile::of_handle(&handle).ok_or(INVALID_VALUE)?;
    valid_if(file.description.sharing == Sharing::Blocks && handle.pool == 0)?;
    // Not in the process that exported it.
    reject_if(file.is_own(), INVALID_CONTEXT)?;
    let mut known = state.imported.iter_mut();
    if let Some((&known, import)) = known.find(|(_, import)| import.handle == handle) {
        import.references += 1;
        return address.set(known);
    }
    let opened = state.import(&file, &handle, Purpose::Imported)?;
    let import = Import {
        handle,
        references: 1,
    };
    state.imported.insert(opened, import);
    address.set(opened)
}

fn close_memory(mut state: Current, address: u64) -> Answer {
    let import = state.imported.get_mut(&address).ok_or(INVALID_VALUE)?;
    import.references -= 1;
    if import.references == 0 {
        state.imported.remove(&address);
        state.remove_allocation(address);
    }
    Ok(())
}

/// The answer for an event that was not created for it is assumed.
fn get_event(mut state: Locked, handle: OutRef<IpcHandle>, event: u64) -> Answer {
    let object = state.event(event)?;
    invalid_if(object.flags & INTERPROCESS == 0)?;
    let device = state.contexts.find(object.context)?.device;
    if object.file.is_none() {
        let file = SharedFile::new(Sharing::Event, 0, (DEVICE, device));
        state.events.find_mut(event)?.file = Some(file.ok_or(OUT_OF_MEMORY)?);
    }
    let file = state.events.find(event)?.file.as_ref();
    handle.set(file.ok_or(INVALID_HANDLE)?.handle(0, 0))
}

fn open_event(mut state: Current, event: OutRef<u64>, ByValue(handle): ByValue) -> Answer {
    let file = SharedFile::of_handle(&handle).ok_or(INVALID_HANDLE)?;
    valid_if(file.description.sharing == Sharing::Event)?;
    reject_if(file.is_own(), INVALID_CONTEXT)?;
    let object = Event {
        context: state.context,
        flags: INTERPROCESS | DISABLE_TIMING,
        recorded: None,
        ticket: 0,
        file: None,
    };
    event.set(state.events.add(object)?)
}
