//! The stack of current contexts of each thread. Plain numbers in a fixed array: a thread's end and
//! the library's unloading need no destructor.

use std::cell::Cell;

use crate::status::Status;

const DEPTH: usize = 16;

#[derive(Debug, Clone, Copy)]
struct Stack {
    contexts: [usize; DEPTH],
    height: usize,
}

thread_local! {
    static STACK: Cell<Stack> = const { Cell::new(Stack { contexts: [0; DEPTH], height: 0 }) };
}

/// The current context of this thread; 0 is none.
pub(crate) fn get() -> usize {
    let stack = STACK.get();
    let top = stack.height.checked_sub(1).and_then(|top| stack.contexts.get(top));
    top.copied().unwrap_or(0)
}

/// Puts a context on top.
pub(crate) fn push(context: usize) -> Result<(), Status> {
    let mut stack = STACK.get();
    *stack.contexts.get_mut(stack.height).ok_or(Status::INVALID_CONTEXT)? = context;
    stack.height += 1;
    STACK.set(stack);
    Ok(())
}

/// Takes the top off and returns it.
pub(crate) fn pop() -> Result<usize, Status> {
    let mut stack = STACK.get();
    let top = get();
    stack.height = stack.height.checked_sub(1).ok_or(Status::INVALID_CONTEXT)?;
    STACK.set(stack);
    Ok(top)
}

/// Replaces the top; 0 only takes it off.
pub(crate) fn set(context: usize) -> Result<(), Status> {
    if STACK.get().height > 0 {
        pop()?;
    }
    if context == 0 { Ok(()) } else { push(context) }
}
