//! Lanes and reads in place, on every device.

use seam_device::{Buffer, BufferUse, CommandList, Device, Lane, Ticket};
use seam_tests::{devices, own_devices};

const WORDS: u64 = 1 << 14;

fn words(device: &dyn Device, buffer: &Buffer) -> Vec<u32> {
    let bytes = device.read(&buffer.all(), &[]).expect("read").wait().expect("wait");
    bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
}

fn copy(device: &dyn Device, from: &Buffer, to: &Buffer) -> CommandList {
    let mut recorder = device.recorder();
    recorder.copy(&from.all(), &to.all()).expect("copy");
    recorder.finish().expect("list")
}

fn buffer(device: &dyn Device, usage: BufferUse) -> Buffer {
    device.alloc("lane", WORDS * 4, usage).expect("alloc")
}

/// A value goes through a kernel lane's copy, a copy lane's and back, many times over without waiting. What the host
/// writes next must not overtake any of them, nor must a read.
#[test]
fn tickets_order_the_lanes() {
    for device in devices() {
        let device = &*device;
        let [a, b, c] = [(); 3].map(|()| buffer(device, BufferUse::Storage));
        let back = buffer(device, BufferUse::Readback);
        let (first, second, third) = (copy(device, &a, &b), copy(device, &b, &c), copy(device, &c, &back));
        let mut last: Vec<Ticket> = Vec::new();
        let mut readers = Vec::new();
        for round in 1..=40u32 {
            device.write(&a.all(), bytemuck::cast_slice(&vec![round; WORDS as usize])).expect("write");
            let one = device.submit(&first, Lane::Compute, &last).expect("submit");
            let two = device.submit(&second, Lane::Copy, &[one]).expect("submit");
            readers.push(device.read(&c.range(4, 8).expect("range"), &[two]).expect("read"));
            last = vec![one, two];
        }
        for (round, reader) in (1u32..).zip(readers) {
            let expected: Vec<u8> = [round, round].iter().flat_map(|v| v.to_le_bytes()).collect();
            assert_eq!(reader.wait().expect("wait"), expected, "{:?}", device.caps().kind);
        }
        let ticket = device.submit(&third, Lane::Copy, &last).expect("submit");
        device.wait(ticket).expect("wait");
        assert!(device.poll(ticket).expect("poll") && device.poll(last[0]).expect("poll"));
        assert_eq!(words(device, &back), vec![40; WORDS as usize]);
        let odd = device.read(&back.range(3, 3).expect("range"), &[ticket]).expect("read").wait().expect("wait");
        assert_eq!(odd, [0, 40, 0]);
        if let Some(time) = device.elapsed(ticket) {
            assert!(time.as_secs() < 10, "{time:?}");
        }
        let unknown = Ticket { value: ticket.value + 1000, ..ticket };
        assert!(!device.poll(unknown).expect("poll"));
    }
}

/// Memory returns once the last list that uses it has run, whatever the order of drops; new memory is zero again.
#[test]
fn memory_outlives_what_uses_it() {
    for device in own_devices() {
        let device = &*device;
        let before = device.stats().allocated;
        for round in 0..50u32 {
            let [a, b] = [(); 2].map(|()| buffer(device, BufferUse::Storage));
            assert!(round % 10 > 0 || words(device, &a).iter().all(|&v| v == 0), "new memory reads as zero");
            device.write(&a.all(), bytemuck::cast_slice(&vec![round; WORDS as usize])).expect("write");
            let list = copy(device, &a, &b);
            let ticket = device.submit(&list, Lane::Copy, &[]).expect("submit");
            let reader = device.read(&b.all(), &[ticket]).expect("read");
            drop((list, a, b));
            assert_eq!(reader.wait().expect("wait")[..4], round.to_le_bytes());
            device.wait(ticket).expect("wait");
        }
        assert_eq!(device.stats().allocated, before);
    }
}
