//! What is refused, and has changed nothing.

use extol::resize::ResizeError;

use super::*;

#[test]
fn a_smaller_size_is_refused() {
    let image = Image::new("8M", &["-b", "1024"]);
    image.with(|fs| {
        let error = fs.grow(Target::Blocks(4096), &mut |_| true).unwrap_err();
        assert!(error.to_string().contains("cannot become smaller"), "{error}");
        let done = fs.grow(Target::Blocks(8192), &mut |_| true).unwrap();
        assert_eq!((done.before, done.blocks), (8192, 8192));
    });
    assert_eq!(image.blocks(), 8192);
    image.assert_clean("as it was");
}

#[test]
fn numbers_have_an_end() {
    let image = Image::new("8M", &["-b", "1024", "-O", "^64bit"]);
    let before = std::fs::metadata(&image.path).unwrap().len();
    let refused = image.with(|fs| fs.grow(Target::Blocks(1 << 32), &mut |_| true));
    assert!(matches!(refused, Err(ResizeError::TooLarge { most: 0xFFFF_FFFF })), "{refused:?}");
    assert_eq!(std::fs::metadata(&image.path).unwrap().len(), before);
}
