use super::fake::{acknowledgment, done, error, kernel, message};
use super::*;

const DEVICE: u16 = 0x1401;
const INDEX: u16 = nl::RDMA_NLDEV_ATTR_DEV_INDEX;

/// Returns a DEV_INDEX attribute.
fn index(value: u32) -> Vec<u8> {
    Request::new(0).u32(INDEX, value).bytes.split_off(MESSAGE_HEADER)
}

fn request() -> Request {
    Request::new(nl::RDMA_NLDEV_CMD_GET)
}

fn get(socket: &mut Socket) -> Result<u32, Failure> {
    socket.get(request(), |answer| answer.u32(INDEX))
}

fn dump(socket: &mut Socket) -> Result<Vec<u32>, Failure> {
    socket.dump(request(), |answer| answer.u32(INDEX))
}

fn is_malformed<T: std::fmt::Debug>(result: &Result<T, Failure>) -> bool {
    matches!(result, Err(Failure::Malformed(_)))
}

#[test]
#[cfg(target_endian = "little")]
fn request_has_header_and_padded_attributes() {
    let request = Request::new(nl::RDMA_NLDEV_CMD_GET_CHARDEV)
        .u32(nl::RDMA_NLDEV_ATTR_DEV_INDEX, 7)
        .string(nl::RDMA_NLDEV_ATTR_CHARDEV_TYPE, "uverbs");
    // These are the bytes that strace shows for the equal request of the C library.
    let expected = fake::hex(
        "24000000            | length
             0f14                | RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, GET_CHARDEV)
             0100                | NLM_F_REQUEST
             02000000 00000000   | sequence, port
             0800 0100 07000000  | DEV_INDEX
             0b00 4500 757665726273 00 00  | CHARDEV_TYPE, NUL, padding",
    );
    assert_eq!(request.finish(0, 2), expected);
}

#[test]
fn get_dump_and_command_set_their_flags() {
    let (mut socket, kernel) =
        kernel(&[message(DEVICE, 1, &index(3)), done(2, 0), acknowledgment(3)]);
    assert_eq!(get(&mut socket), Ok(3));
    assert_eq!(dump(&mut socket), Ok(vec![]));
    assert_eq!(socket.command(request()), Ok(()));
    let flags = kernel.requests().into_iter().map(|sent| [sent[6], sent[7]]);
    assert!(flags.eq([1u16, 0x301, 5].map(u16::to_ne_bytes)));
}

#[test]
fn errno_is_returned_as_answer() {
    let errors = [error(1, -libc::EPERM), error(2, -4000), error(3, -17), done(4, -22)];
    let (mut socket, _kernel) = kernel(&errors);
    assert_eq!(get(&mut socket), Err(Failure::Os(libc::EPERM)));
    assert_eq!(dump(&mut socket), Err(Failure::Os(4000)));
    assert_eq!(socket.command(request()), Err(Failure::Os(libc::EEXIST)));
    assert_eq!(dump(&mut socket), Err(Failure::Os(libc::EINVAL)));
}

#[test]
fn list_in_parts_is_read_whole() {
    let first = [message(DEVICE, 1, &index(0)), message(DEVICE, 1, &index(1))].concat();
    let second = [message(DEVICE, 1, &index(5)), done(1, 0)].concat();
    let (mut socket, _kernel) = kernel(&[first, second]);
    assert_eq!(dump(&mut socket), Ok(vec![0, 1, 5]));
}

#[test]
fn endless_list_is_refused() {
    let many = |count| [message(DEVICE, 1, &index(7)).repeat(count), done(1, 0)].concat();
    let (mut socket, _kernel) = kernel(&[many(MOST)]);
    assert_eq!(dump(&mut socket), Ok(vec![7; MOST]));
    let (mut socket, _kernel) = kernel(&[many(MOST + 1)]);
    assert_eq!(dump(&mut socket), Err(UNTERMINATED_LIST));
}

#[test]
fn leftovers_of_other_request_are_skipped() {
    let stale = message(DEVICE, 77, &index(9));
    let (mut socket, _kernel) =
        kernel(&[stale.clone(), [stale, message(DEVICE, 1, &index(4))].concat()]);
    assert_eq!(get(&mut socket), Ok(4));
}

#[test]
fn missing_answer_does_not_hang() {
    let (mut socket, kernel) = kernel(&[message(DEVICE, 2, &index(0))]);
    assert!(is_malformed(&get(&mut socket)), "no answer at all");
    assert!(is_malformed(&dump(&mut socket)), "a list without its end");
    drop(kernel);
    assert!(get(&mut socket).is_err(), "the kernel should have closed the socket");
}

#[test]
fn unread_requests_do_not_hang() {
    let (mut socket, _kernel) = kernel(&[]);
    assert!((0..100_000).any(|_| get(&mut socket) == Err(Failure::Os(libc::EAGAIN))));
    assert_eq!(dump(&mut socket), Err(Failure::Os(libc::EAGAIN)));
}

#[test]
fn protocol_violations_are_refused() {
    let answers = [
        acknowledgment(1),
        message(DEVICE, 2, &[]),
        message(DEVICE, 3, &[8, 0]),
        message(4, 4, &[]),
        error(5, 1),
    ];
    let (mut socket, _kernel) = kernel(&answers);
    for answer in 1..=answers.len() {
        assert!(is_malformed(&get(&mut socket)), "{answer}");
    }
    let (mut socket, _kernel) = kernel(&[message(DEVICE, 1, &index(0))]);
    assert!(is_malformed(&socket.command(request())));
}

#[test]
fn oversized_answer_is_not_read_partially() {
    let long = [message(DEVICE, 1, &index(0)), vec![0; BUFFER]].concat();
    let (mut socket, _kernel) = kernel(&[long]);
    assert_eq!(get(&mut socket), Err(RESPONSE_TOO_LONG));
}

#[test]
fn answer_may_fill_buffer() {
    let length = BUFFER - message(DEVICE, 1, &index(0)).len() - ATTRIBUTE_HEADER;
    let padding = Request::new(0).string(0, &"x".repeat(length - 1)).bytes;
    let full = message(DEVICE, 1, &[index(5), padding[MESSAGE_HEADER..].to_vec()].concat());
    assert_eq!(full.len(), BUFFER);
    let (mut socket, _kernel) = kernel(&[full]);
    assert_eq!(get(&mut socket), Ok(5));
}

#[test]
fn concurrent_requests_get_their_own_answers() {
    let both = |socket: &mut Socket| {
        let read = |answer: Attributes<'_>| answer.u32(INDEX);
        socket.get_both((request(), read), (request(), read))
    };
    let (mut socket, kernel) = kernel(&[
        message(DEVICE, 1, &index(3)),
        message(DEVICE, 2, &index(4)),
        error(3, -libc::EINVAL),
        message(DEVICE, 4, &[]),
        message(DEVICE, 6, &index(5)),
        [message(DEVICE, 9, &index(1)), message(DEVICE, 5, &index(6))].concat(),
        message(DEVICE, 7, &index(7)),
    ]);
    assert_eq!(both(&mut socket), (Ok(3), Ok(4)));
    assert_eq!(both(&mut socket), (Err(Failure::Os(libc::EINVAL)), Err(ATTRIBUTE_MISSING)));
    assert_eq!(both(&mut socket), (Ok(6), Ok(5)), "in any order");
    assert_eq!(both(&mut socket), (Ok(7), Err(NO_RESPONSE)), "one answer");
    assert_eq!(both(&mut socket), (Err(NO_RESPONSE), Err(NO_RESPONSE)));
    let requests = kernel.requests();
    assert_eq!(requests.len(), 5, "one datagram for two");
    assert_eq!((requests[0].len(), requests[0][8], requests[0][24]), (32, 1, 2));
    let (mut socket, _kernel) =
        fake::kernel(&[message(DEVICE, 1, &index(3)), vec![0; BUFFER / 2 + 1]]);
    assert_eq!(both(&mut socket), (Err(RESPONSE_TOO_LONG), Err(RESPONSE_TOO_LONG)));
}

#[test]
fn failures_become_errors() {
    let error = Failure::Os(libc::EPERM).error("add the RDMA link", "rxe0");
    assert_eq!((error.errno(), error.subject()), (libc::EPERM, "rxe0"));
    let error = Failure::Malformed("there is no answer").error("list", "");
    assert_eq!(error.errno(), libc::EPROTO);
    assert!(error.to_string().contains("there is no answer"));
}
