//! `client`: a CUDA program that does one thing after the other as it is told (`protocol.rs`), and
//! ends with its stdin. What it holds of the card goes with it.

use std::io::{self, BufRead as _, Write as _};
use std::time::Instant;

use anyhow::{Context as _, Result};
use mpshare_cuda::{Allocation, Code, Context, CudaError, Device, Driver};
use serde_json::{Value, json};

use crate::protocol::{Reply, Request};

/// Two functions: one that writes to address 0, one that runs for 250 ms by the card's clock. For
/// Volta and all later cards; the driver compiles it (seen to compile with `ptxas` of CUDA 12.2 and
/// 13.5 for 7.0 to 12.0).
const PROGRAM: &std::ffi::CStr = c"
.version 6.0
.target sm_70
.address_size 64

.visible .entry fault()
{
    .reg .b64 %address;
    .reg .b32 %value;
    mov.u64 %address, 0;
    mov.u32 %value, 1;
    st.global.u32 [%address], %value;
    ret;
}

.visible .entry spin_ms_250()
{
    .reg .pred %busy;
    .reg .b64 %now, %end;
    mov.u64 %now, %globaltimer;
    add.u64 %end, %now, 250000000;
again:
    mov.u64 %now, %globaltimer;
    setp.lt.u64 %busy, %now, %end;
    @%busy bra again;
    ret;
}
";

/// An address that no allocation has. A card that computes nothing can't fault in a program; it may
/// here.
const NOWHERE: u64 = 0xdead_0000;

/// Does what it is told until its stdin ends.
pub(crate) fn run() -> Result<()> {
    let mut program = Program::default();
    for line in io::stdin().lock().lines() {
        let request: Request = serde_json::from_str(&line?).context("no request")?;
        let reply = match program.serve(&request) {
            Ok(value) => Reply::Done(value),
            Err(CudaError::Refused { call, code }) => Reply::Refused {
                call: call.to_owned(),
                code: code.0,
                message: CudaError::Refused { call, code }.to_string(),
            },
            Err(error) => Reply::Failed(error.to_string()),
        };
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{}", serde_json::to_string(&reply)?)?;
        stdout.flush()?;
    }
    Ok(())
}

/// What it has of the card. Both live as long as the process.
#[derive(Default)]
struct Program {
    driver: Option<&'static Driver>,
    context: Option<&'static Context<'static>>,
    held: Vec<Allocation<'static>>,
}

impl Program {
    fn serve(&mut self, request: &Request) -> Result<Value, CudaError> {
        match request {
            Request::Version => Ok(json!({ "cuda": self.driver()?.version()? })),
            Request::Open => self.open(),
            Request::Take { mib } => {
                let block = self.context()?.allocate(bytes(*mib))?;
                self.held.push(block);
                Ok(json!({ "mib": mib }))
            }
            Request::TakeAll { steps, at_most } => self.take_all(steps, *at_most),
            Request::Work { launches } => self.work(*launches),
            Request::Fault => self.fault(),
        }
    }

    fn driver(&mut self) -> Result<&'static Driver, CudaError> {
        if let Some(driver) = self.driver {
            return Ok(driver);
        }
        let driver: &'static Driver = Box::leak(Box::new(Driver::open(&[])?));
        self.driver = Some(driver);
        Ok(driver)
    }

    fn context(&self) -> Result<&'static Context<'static>, CudaError> {
        const NOT_INITIALIZED: Code = Code(3);
        self.context.ok_or(CudaError::Refused { call: "open", code: NOT_INITIALIZED })
    }

    fn open(&mut self) -> Result<Value, CudaError> {
        let driver = self.driver()?;
        driver.init()?;
        let device = driver.device(0)?;
        let context: &'static Context<'static> = Box::leak(Box::new(driver.context(device)?));
        self.context = Some(context);
        told(driver, device, context)
    }

    fn take_all(&mut self, steps: &[u64], at_most: u64) -> Result<Value, CudaError> {
        let context = self.context()?;
        let mut taken = 0;
        for step in steps {
            while taken + step <= at_most {
                match context.allocate(bytes(*step)) {
                    Ok(block) => self.held.push(block),
                    Err(error) if error.code() == Some(Code::OUT_OF_MEMORY) => break,
                    Err(error) => return Err(error),
                }
                taken += step;
            }
        }
        Ok(json!({ "mib": taken }))
    }

    fn work(&self, launches: u32) -> Result<Value, CudaError> {
        let context = self.context()?;
        let module = context.load(PROGRAM)?;
        let function = module.function(c"spin_ms_250")?;
        let start = Instant::now();
        for _ in 0..launches {
            function.launch()?;
        }
        context.synchronize()?;
        Ok(json!({ "ms": u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX) }))
    }

    fn fault(&self) -> Result<Value, CudaError> {
        let context = self.context()?;
        let module = context.load(PROGRAM)?;
        module.function(c"fault")?.launch()?;
        context.synchronize()?;
        context.write_anywhere(NOWHERE)?;
        context.synchronize()?;
        Ok(json!({ "faulted": false }))
    }
}

fn told(driver: &Driver, device: Device, context: &Context<'_>) -> Result<Value, CudaError> {
    let memory = context.memory()?;
    Ok(json!({
        "cards": driver.device_count()?,
        "name": driver.name(device)?,
        "uuid": driver.uuid(device)?,
        "is_mps_client": driver.is_mps_client(device).ok(),
        "multiprocessors": driver.multiprocessors(device)?,
        "free_mib": memory.free >> 20,
        "total_mib": memory.total >> 20,
    }))
}

fn bytes(mib: u64) -> usize {
    usize::try_from(mib).unwrap_or(usize::MAX >> 20) << 20
}
