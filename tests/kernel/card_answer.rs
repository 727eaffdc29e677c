//! Tests with wrong answers of the kernel's driver for mlx5.
//!
//! The card alters an answer when a test requests it (`tests/kmod/mlx5/answer.c`).

use std::fs;
use std::mem::{offset_of, size_of};

use rdmacm::ErrorKind;
use rdmacm::Result;
use rdmacm::verbs::{
    AddressHandle, CompletionQueue, Context, ProtectionDomain, QueuePair, QueuePairCaps,
    QueuePairInit, SendFlags, SendOperation, SharedReceiveQueue, SharedReceiveQueueAttributes,
};
use rdmacm_tests::roce::CardParameter;
use rdmacm_tests::{mount_debugfs, promised_device};
use verbs_abi::mlx5::{
    mlx5_ib_alloc_ucontext_resp, mlx5_ib_create_qp_resp, mlx5_user_cmds_supp_uhw,
};

use crate::fixtures::{device, objects, roce_name};
use crate::io::{post_nothing, push_inline, receive_nothing};
use crate::{manual_qp, shared};

const ANSWER: &str = "/sys/kernel/debug/mlx5_card/answer";

/// Commands whose answers have data of the driver.
const COMMANDS: [&str; 5] = ["alloc_ucontext", "alloc_pd", "create_cq", "create_srq", "create_qp"];

/// Length of the longest answer in bytes.
const LONGEST: usize = size_of::<mlx5_ib_alloc_ucontext_resp>();

/// Opens the device, and creates and uses an object of each kind.
fn use_device() -> Result<()> {
    let context = Context::open(&device(roce_name()))?;
    let pd = ProtectionDomain::new(&context)?;
    let cq = CompletionQueue::new(&context, 256, None)?;
    let srq = SharedReceiveQueue::new(&pd, SharedReceiveQueueAttributes::default())?;
    let caps = QueuePairCaps { max_inline_data: 200, ..QueuePairCaps::default() };
    let qp = QueuePair::new(&pd, &QueuePairInit { caps, ..QueuePairInit::new(&cq) })?;
    manual_qp::connect(&qp, &qp);
    fill(|| shared::receive_nothing(&srq, 1))?;
    fill(|| receive_nothing(&qp, 2))?;
    // One payload fits into a unit of the ring, and the other one has the maximum length. The library copies short entries to
    // the register, whose size is one of the altered numbers.
    post_nothing(&qp, 3, SendOperation::Send)?;
    let bytes = vec![3; usize::try_from(qp.caps().max_inline_data).expect("a length")];
    fill(|| {
        let mut queue = qp.lock_send_queue()?;
        push_inline(&mut queue, 4, SendOperation::Send, &bytes, SendFlags::SIGNALED)?;
        queue.ring_doorbell()
    })
}

/// Posts until the queue is full.
fn fill(mut post: impl FnMut() -> Result<()>) -> Result<()> {
    for _ in 0..1000 {
        match post() {
            Err(error) if error.errno() == libc::ENOMEM => return Ok(()),
            posted => posted?,
        }
    }
    Ok(())
}

/// Uses the device while one answer is altered. Checks that no object is left.
fn use_with(alteration: &str) -> Result<()> {
    let before = objects();
    fs::write(ANSWER, alteration).unwrap_or_else(|error| panic!("{alteration}: {error}"));
    let used = use_device();
    assert_eq!(fs::read_to_string(ANSWER).expect("read"), "", "{alteration} should happen");
    assert_eq!(objects(), before, "{alteration}");
    used
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn altered_answers_leave_no_objects() {
    promised_device(roce_name());
    mount_debugfs();
    use_device().expect("the answers should be right");
    // If the number of a register or of a queue is altered, the card counts the doorbells as faults of the program.
    let _parameter = CardParameter::without_complaints();
    let mut failed = 0;
    for command in COMMANDS {
        let cut = (0..LONGEST).step_by(4).map(|length| format!("cut {command} {length}"));
        let words = [0, 1, 2, 16, 64, 0xff, 256, 1024, 4096, 0x101_0101, 1 << 31, u32::MAX];
        let set = (0..LONGEST)
            .step_by(4)
            .flat_map(|offset| words.map(|word| format!("set {command} {offset} {word}")));
        for alteration in cut.chain(set) {
            let Err(error) = use_with(&alteration) else { continue };
            let text = error.to_string();
            assert!(
                text.starts_with("cannot ") && text.contains(roce_name()),
                "{alteration}: {text}"
            );
            println!("{alteration}: {error}");
            failed += 1;
        }
    }
    assert!(failed > 20, "only {failed} alterations are detected");
    use_device().expect("the answers should be right again");
}

/// Checks requests to older kernels, which accept only the beginning and return less.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn older_kernel_gets_shorter_request() {
    promised_device(roce_name());
    for length in ["31", "24", "23", "16"] {
        let _longest = CardParameter::set("request_length", length);
        for answer in ["72", "60", "48"] {
            let _longest = CardParameter::set("answer_length", answer);
            use_device().unwrap_or_else(|error| panic!("{length}, {answer}: {error}"));
        }
    }
    let before = objects();
    {
        // The answer lacks the number of registers.
        let _longest = CardParameter::set("answer_length", "8");
        let error = use_device().expect_err("the answer should be too short");
        assert_eq!(error.errno(), libc::EINVAL, "{error}");
        assert_eq!(objects(), before);
    }
    let _longest = CardParameter::set("request_length", "15");
    let error = use_device().expect_err("no request should be accepted");
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    let text = error.to_string();
    assert!(text.starts_with(&format!("cannot open the device {}: ", roce_name())), "{text}");
    assert_eq!(objects(), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unmapped_register_page_is_reported() {
    promised_device(roce_name());
    let name = roce_name();
    let check = |pages: &str, memory: &str| {
        let before = objects();
        let _most = CardParameter::set("register_pages", pages);
        let error = use_device().expect_err("a page should be missing");
        assert_eq!(error.errno(), libc::ENOMEM, "{error}");
        let text = error.to_string();
        assert!(text.starts_with(&format!("cannot map {memory} {name}: ")), "{text}");
        assert!(text.contains("; raise RLIMIT_AS (ulimit -v)"), "{text}");
        drop(error);
        assert_eq!(objects(), before, "{text}");
    };
    for pages in ["0", "1", "7"] {
        check(pages, "the registers of");
    }
    let _dynamic = CardParameter::set("dynamic", "Y");
    check("0", "the registers of");
    check("1", "the rings or registers of a queue pair on");
    let _most = CardParameter::set("register_pages", "2");
    use_device().expect("the pages should be enough");
}

/// Checks the fallback for a register page whose number exceeds the 16 bits in CREATE_CQ.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn large_page_number_selects_static_registers() {
    promised_device(roce_name());
    let before = objects();
    let _dynamic = CardParameter::set("dynamic", "Y");
    let _first = CardParameter::set("first_page", "70000");
    use_device().expect("the kernel should choose the registers");
    assert_eq!(objects(), before);
    // Static registers need 8 pages, and dynamic ones need 2.
    let _most = CardParameter::set("register_pages", "7");
    let error = use_device().expect_err("a page should be missing").to_string();
    assert!(error.starts_with("cannot map the registers of "), "{error}");
    assert_eq!(objects(), before);
}

#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn impossible_answer_is_reported() {
    promised_device(roce_name());
    mount_debugfs();
    let version = offset_of!(mlx5_ib_alloc_ucontext_resp, cqe_version);
    let register = offset_of!(mlx5_ib_create_qp_resp, bfreg_index);
    for (alteration, expected) in [
        (
            format!("set alloc_ucontext {version} 2"),
            "completion queue entries of a version above 1",
        ),
        (format!("set create_qp {register} 100000"), "describes memory that cannot be mapped"),
    ] {
        let error = use_with(&alteration).expect_err("the answer should be refused").to_string();
        assert!(error.contains(expected), "{alteration}: {error}");
    }
}

/// Checks address handles of older kernels, whose answer to CREATE_AH has no MAC address.
///
/// The answer for a context shows this.
#[test]
#[ignore = "needs the test bed: cargo xtask test"]
fn unresolved_datagram_address_is_reported() {
    promised_device(roce_name());
    mount_debugfs();
    // The word has the version of completions, the commands with driver data, and two other bytes.
    let offset = offset_of!(mlx5_ib_alloc_ucontext_resp, cqe_version);
    assert_eq!(offset_of!(mlx5_ib_alloc_ucontext_resp, cmds_supp_uhw), offset + 1);
    let queries = mlx5_user_cmds_supp_uhw::MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE.bits();
    let resolves = mlx5_user_cmds_supp_uhw::MLX5_USER_CMDS_SUPP_UHW_CREATE_AH.bits();
    let before = objects();
    for (commands, is_supported) in [(queries, false), (queries | resolves, true)] {
        let word = u32::from_ne_bytes([1, commands, 1, 1]);
        fs::write(ANSWER, format!("set alloc_ucontext {offset} {word}"))
            .expect("request the alteration");
        let context = Context::open(&device(roce_name())).expect("open");
        assert_eq!(fs::read_to_string(ANSWER).expect("read"), "", "alteration should happen");
        let pd = ProtectionDomain::new(&context).expect("protection domain");
        let to = manual_qp::address();
        match AddressHandle::new(&pd, &to) {
            Ok(_) => assert!(is_supported, "handle should be refused"),
            Err(error) => {
                assert!(!is_supported, "{error}");
                assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error:?}");
                let text = error.to_string();
                let expected = "a kernel that does not resolve the addresses of datagrams";
                assert!(text.starts_with("cannot create an address handle"), "{text}");
                assert!(text.contains(expected) && text.contains(roce_name()), "{text}");
            }
        }
    }
    assert_eq!(objects(), before);
}
